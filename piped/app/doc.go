// Package app is the agent as one object: New builds and connects all components, Run
// runs them until its context ends. It is the only package that imports all others. Its
// own logic is the life cycle of components and the reload of the configuration.
//
//	app.go           builds the components in order
//	parts.go         runs, stops and releases them
//	datadir.go       the data directory, used by one agent at a time
//	secrets.go       the keys in it
//	backup.go        backup and restore of all state
//	metrics.go       the registry of all metrics
//	live.go          the state that a reload of the configuration changes:
//	settings.go        the table of settings with their effects
//	clusters.go        the clusters of the platform providers
//	repositories.go    the mirrors of the repositories
//	credentials.go     the credentials for Git remotes
//	follower.go        the trigger, which is replaced
//	webhooks.go        the receivers of pushes
//	reload.go        detects changed files and reloads
//	running.go       live commits and foreign objects, for the trigger
//	preview.go       previews of a sync, for the control API
//
// Tests build an agent in their process with New, with their own data directory and
// addresses with port 0.
package app
