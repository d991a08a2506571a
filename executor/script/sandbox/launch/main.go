// Command launch is the launcher of scripts without the agent. Tests use it, see sandbox.Program.
package main

import _ "github.com/c785c783/piped/executor/script/sandbox"

func main() {}
