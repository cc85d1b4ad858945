"""Objects from plain settings: nodes, choices, and the model that they define."""
