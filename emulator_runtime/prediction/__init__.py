"""Traces of training programs, and the prediction of their steps on other devices (Maya, EuroSys 2026)."""
