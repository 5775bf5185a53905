"""What only a lesson needs: figures, exercise feedback, sliders, source."""
