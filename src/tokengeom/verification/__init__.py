"""What is checked again in saved results, and how; registered by kind."""
