// Package sandbox runs a shell script apart from the agent: it sees none of the
// agent's files and processes, and ends as a whole.
//
//	mode.go        how scripts are isolated, and what each way holds
//	launcher.go    the agent's side: choosing a mode, starting a script, its end
//	users.go       whom scripts run as that run as other users
//	paths.go       what scripts see of the machine
//
// and, for Linux:
//
//	main_linux.go        the launcher: this program, started again
//	supervise_linux.go   the parent of a script, which ends all of its processes
//	namespaces_linux.go  the root directory of a script with namespaces of its own
//	landlock_linux.go    the restrictions of a script without them
//	user_linux.go        becoming another user, and ending all that runs as it
//	cgroup_linux.go      the control group of a script, which the kernel kills
//	shed_linux.go        giving up privileges
//
// The agent starts its own program again as the launcher, which sets up the
// sandbox and runs the shell. A program that embeds the agent calls Main first.
//
// The launcher has three pipes to the agent: the specification on its standard
// input, the control pipe (a byte asks the script to end, its end kills it, so
// that no script outlives a killed agent), and the report about the end.
//
// Only Linux offers what is needed; elsewhere no mode is available. The package
// writes no log and stores nothing.
package sandbox
