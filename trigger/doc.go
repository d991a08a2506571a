// Package trigger owns the step before the three phases: something happened,
// in Git or by command, and a PENDING deployment comes of it.
//
// One goroutine per repository watches the head of its branch, so that a slow
// or dead repository delays no other. When the head has moved, a pass over the
// repository
//
//  1. finds the application configurations of the head commit (catalog.go),
//  2. registers the applications the agent is configured to take (register.go),
//  3. decides for each whether the commits since the last evaluated one touch it
//     and makes a deployment if they do (commit.go, touched.go).
//
// Sync commands are answered by the same goroutine, for the head they find
// (command.go); each is answered once, with a deployment or with the reason why
// there is none.
//
// The package decides nothing about how an application is deployed, and only
// reads from Git.
package trigger
