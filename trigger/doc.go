// Package trigger creates PENDING deployments. Their causes are commits, commands, drift of
// the live state, and deployment chains.
//
// One goroutine per repository watches the head of its branch, so that a slow or unreachable
// repository does not delay others (watcher.go). A pass over the repository
//
//  1. finds the application configurations of the head commit (catalog.go), refuses the
//     commit for those applications for which it lacks a required signature (signature.go),
//     and detects applications that were moved (move.go),
//  2. registers the applications that the agent's configuration selects (register.go)
//     and lists the others as candidates (candidate.go),
//  3. finds the live objects of new applications and takes them over (takeover.go). It holds
//     these applications while their cluster does not answer (silence.go), or until a user
//     permits the takeover (review.go),
//  4. decides for each application whether the commits since the last evaluated one change
//     it, and creates a deployment if they do (commit.go),
//  5. heals applications whose live state has drifted, unless a commit has already led to a
//     deployment (drift.go, guard.go),
//  6. answers each sync command once, for the head of the pass: with a deployment or with the
//     reason for its rejection (command.go, hold.go).
//
// Steps 1 to 5 do almost nothing while neither the head nor an application has changed. A
// deployment may begin a chain: then the applications of its later blocks get commands of
// their own (chain.go), which are answered like those of users. The planner makes each block
// wait for the one before.
//
// Foresee returns what a commit that does not exist yet would deploy (foresee.go).
//
// The package does not decide how an application is deployed, and only reads from Git. It
// reads drift from the store, where the drift detector writes it.
package trigger
