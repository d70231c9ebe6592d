"""What was published, as data: settings, figures, experiments and statements."""
