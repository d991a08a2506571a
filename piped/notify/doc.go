// Package notify delivers events from the outbox to receivers: at least once, and in
// order where the receiver asks for an order.
//
// The Courier has two jobs. It routes: it asks every receiver which committed events it wants,
// and stores one delivery for each, in the transaction that marks the events as routed. It
// delivers: one worker per receiver sends that receiver's deliveries, a few concurrently.
// Deliveries with the same order key wait for one another; all others are independent. A
// failing receiver therefore delays no other receiver, and writers of events never wait.
//
// A failed delivery is retried with exponential backoff: after 1 s, doubling up to
// 5 minutes, with jitter. If the error has a method RetryAt() time.Time, that time is
// used instead. A delivery becomes a dead letter, stored with its error, when an attempt
// fails at least 24 hours after the event and at least five attempts were made, or at
// once when the error is of kind deploy.Invalid (the receiver can never accept this
// message). An error that a user can fix, such as a wrong token, is of kind
// deploy.Denied and is retried.
//
// The package depends on no particular receiver. Receivers are packages below this one. They
// hold their own secrets and never write them into errors. Their tests use a real store and
// real HTTP servers.
package notify
