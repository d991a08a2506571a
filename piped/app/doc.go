// Package app is the agent as one object: New builds every component in one
// straight line, Run runs them until its context ends. It is the only package
// that knows all others, and holds no logic of its own but how the
// configuration is followed while the agent runs.
//
//	app.go           the agent: what it is built of, in order
//	parts.go         running, stopping and releasing what it is built of
//	datadir.go       the data directory, which one agent has for itself
//	secrets.go       the keys in it
//	backup.go        all that is kept, written into one file and brought back
//	live.go          what the configuration decides and a reload changes:
//	clusters.go        the clusters of the platform providers
//	repositories.go    the mirrors of the repositories
//	credentials.go     how Git remotes are authenticated to
//	follower.go        the trigger, stopped and made anew
//	webhooks.go        the receivers of pushes
//	reload.go        when that happens: the files changed, or a signal came
//	running.go       what runs in the clusters, for the trigger
//	preview.go       what a sync would do, for the control API
//
// To test with it, build an agent in the test's process with New, on a data
// directory of the test's own and addresses with port 0.
package app
