"""Tables and figures. They read tidy metrics and the plan, nothing else."""
