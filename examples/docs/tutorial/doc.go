// Package tutorial runs docs/tutorial.md: its test writes the files that the page shows
// and executes its commands, against a real control plane. It never changes the page.
package tutorial
