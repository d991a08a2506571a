// Package trigger owns the step before the three phases: something happened,
// in Git, by command, in the live state or in a deployment chain, and a PENDING
// deployment comes of it.
//
// One goroutine per repository watches the head of its branch, so that a slow
// or dead repository delays no other (watcher.go). A pass over the repository
//
//  1. finds the application configurations of the head commit (catalog.go) and
//     drops those for which it is not signed as it must be (signature.go),
//  2. registers the applications the agent is configured to take (register.go)
//     and lists the others (candidate.go),
//  3. looks up what already runs of new applications, and takes it over
//     (takeover.go), or holds them while their cluster does not answer
//     (silence.go) or a user has not permitted it (review.go),
//  4. decides for each whether the commits since the last evaluated one touch it
//     and creates a deployment if they do (commit.go),
//  5. heals those whose live state has drifted, unless a commit did (drift.go,
//     guard.go),
//  6. answers sync commands for the head it found, each once, with a deployment
//     or with the reason why there is none (command.go).
//
// The first five cost nothing while neither the head nor an application has
// changed. A deployment may begin a chain: then the applications of its later
// blocks get commands of their own (chain.go), which are answered like those of
// users. The planner makes each block wait for the one before.
//
// Foresee returns what a commit that does not exist yet would deploy (foresee.go).
//
// The package does not decide how an application is deployed, and only reads from
// Git. It reads drift from the store, where the drift detector writes it.
package trigger
