"""Measuring the CPU where the worker runs: ECS tasks, containers, EC2 hosts."""
