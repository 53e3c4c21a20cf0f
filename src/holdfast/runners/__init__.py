"""The runner protocol: machines that have only HTTPS claim work, stream logs and obey cancels."""
