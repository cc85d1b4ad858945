"""What training leaves behind: a model with its tokenizer and configuration."""
