// Package sandbox runs a shell script isolated from the agent: the script sees none of
// the agent's files and processes, unless the mode is None, and all its processes end together.
//
//	mode.go        the isolation modes and their guarantees
//	launcher.go    the agent's side: selects a mode, starts and ends scripts
//	users.go       the users for scripts that run as other users
//	paths.go       the system paths that scripts can read
//
// and, for Linux:
//
//	main_linux.go        the launcher: this program, started again
//	supervise_linux.go   the parent of a script, which ends all its processes
//	namespaces_linux.go  the root directory of a script in its own namespaces
//	landlock_linux.go    restrictions without namespaces
//	user_linux.go        becomes another user, and ends all its processes
//	cgroup_linux.go      the control group of a script, which the kernel can kill
//	shed_linux.go        drops privileges
//	launch               the launcher as a program of its own, for tests
//
// The agent starts its own program again as the launcher, which sets up the sandbox and
// runs the shell.
//
// Three pipes connect the launcher with the agent: the specification on standard input,
// the control pipe, and the report about the end. On the control pipe a byte requests
// termination. Its end kills the script, so that no script outlives a killed agent.
//
// On other systems than Linux no mode is available. The package writes no log and
// stores nothing.
package sandbox
