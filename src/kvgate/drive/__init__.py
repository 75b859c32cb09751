"""The only caller of ansible-runner and paramiko: brings hosts into an arm and collects facts."""
