// Package kubernetes holds the parts of the configuration that only Kubernetes
// applications and Kubernetes platform providers have: their fields, defaults
// and rules. It does no input or output and talks to no cluster; package config
// composes it with what every kind of application shares.
package kubernetes
