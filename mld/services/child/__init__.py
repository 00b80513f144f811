"""One child process: messages, time-outs, output, exit."""
