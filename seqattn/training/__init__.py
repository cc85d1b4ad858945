"""What turns logits into a loss, and gradients into steps."""
