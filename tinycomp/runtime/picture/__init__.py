"""Pictures of reports: a page, a small form for notebooks, and files for Model Explorer."""
