// Package tutorial runs docs/tutorial.md: its test writes the files that the page shows
// and executes its commands, against a real control plane. It runs the commands of
// docs/reference/http-api.md and the first ones of README.md, too. It never changes a page.
package tutorial
