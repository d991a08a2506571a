// Package opentofu runs OpenTofu and Terraform in a directory that the caller has prepared, and
// reads their plans and states.
//
//	program.go   finds the program and checks its version
//	run.go       one run: init, workspace, plan, apply, refresh
//	flags.go     the flags of the configuration as options of the commands
//	plan.go      a plan as changes by resource and attribute
//	left.go      whether a plan is what is left of an earlier one
//	state.go     the resources and outputs of a state
//	lock.go      who holds the lock of a state
//
// A run gets no variable of the agent's environment but those that the platform provider names.
// It is a process group of its own, and ends with the agent.
package opentofu
