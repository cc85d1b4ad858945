"""What a bundle makes of some sentences, looked into, as one page: its documents, and the page."""
