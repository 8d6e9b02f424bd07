"""The scheduler loop: from events to views, from plans to actions, whichever cluster it drives."""
