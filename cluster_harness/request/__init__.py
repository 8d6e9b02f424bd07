"""What a cluster shall look like: the flags of `emugpu cluster up` become a specification."""
