// Package script runs SCRIPT_RUN and CUSTOM_SYNC, and the stages that undo them: shell
// scripts of an application, in a directory with the commit's files.
//
//	executor.go   runs a stage, with its intent record
//	job.go        selects the script of a stage
//	env.go        the environment of a script
//	workspace.go  the directory of one run
//	process.go    one run, by a launcher: see package sandbox
//
// The package owns the configured directory and every process of a stage: Execute
// removes both before it returns, and New cleans up after a killed agent, whose scripts are
// killed with it. A script inherits nothing of the agent's environment. It runs in a sandbox;
// on machines without support for one, stages with scripts fail. Only without isolation,
// which requires explicit configuration, can a script read what the agent's user can, and
// kill the launcher that ends it.
//
// Scripts are not idempotent, so an intent is stored before the start: a script that
// was interrupted by the end of the agent is not run again unless the stage sets
// onInterrupted: rerun.
package script
