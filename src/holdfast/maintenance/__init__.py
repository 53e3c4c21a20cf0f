"""The leader's duties: stage, rescue, prune, schedule, count.  Each turn is fenced by the leader's term."""
