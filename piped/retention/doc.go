// Package retention removes what is over for longer than it is to be kept: the logs of
// deployments, later the deployments themselves, and commands that were answered.
//
// It decides when, and how much at a time; what may go is the store's to say. It removes in
// batches with pauses between them, so that nobody who writes waits long, and goes on where
// it was after a restart. Only one agent of a store needs to run it, several do no harm.
//
// To test with it, run it in a bubble of testing/synctest.
package retention
