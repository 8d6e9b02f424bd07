"""The programs of the chart's hooks: what Helm can't do before an install, an upgrade or an uninstall."""
