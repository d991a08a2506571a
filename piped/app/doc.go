// Package app is the agent as one object: New builds every component in one
// straight line, Run runs them until its context ends. It is the only package
// that knows all others, and holds no logic of its own.
package app
