// Package retention deletes old data: the logs of ended deployments, later the deployments
// themselves, rollouts of deleted workloads, answered commands, ended sessions, old records of
// the audit log, and of the pull requests of commits.
//
// It decides when to delete and in which batches; the store decides what may be deleted.
// It pauses between batches, so that other writers are not delayed, and needs no state to
// continue after a restart. One agent per store is enough; several do no harm.
//
// Tests run it in a testing/synctest bubble.
package retention
