"""The scheduler: leads gangs through their attempts and gives waiting jobs to idle agents."""
