// Package script runs SCRIPT_RUN and CUSTOM_SYNC, and the stages that undo them:
// shell scripts of an application, in a directory that holds the commit's files.
//
//	executor.go   a stage from its options to its end, and its intent record
//	job.go        which script a stage runs, and whether it may
//	env.go        the environment a script sees
//	workspace.go  the directory of one run
//	isolated.go   one run in a sandbox: see package sandbox
//	process.go    one run without isolation: a process group, to its last member
//	output.go     what it prints, bounded, as lines of the stage's log
//
// It owns the directory it is given and every process started for a stage: when
// Execute returns, both are gone, and New ends what a killed agent left behind.
// A script gets nothing of the agent's own environment. It runs in a sandbox;
// where the machine offers none, stages with scripts fail. Only without isolation,
// which the configuration has to ask for, a script can read what the agent's user
// can, and a process that both leaves its process group and empties its environment
// escapes being ended.
//
// A script has effects nobody can repeat safely, so an intent is stored before
// it starts: one that was interrupted by the end of the agent is not run again
// unless the stage says onInterrupted: rerun.
package script
