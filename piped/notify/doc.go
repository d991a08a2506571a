// Package notify tells the world outside what happened: it leads the events of the
// outbox to receivers and hands them over, at least once, in order where order is
// asked for, for as long as it takes or until it is given up.
//
// It owns the two jobs of that. The Courier routes: it asks every receiver which of
// the committed events it wants, and stores that as deliveries in the transaction
// that marks the events. And it delivers: one worker for each receiver hands over
// that receiver's deliveries, a few at once. Deliveries of one order wait for one
// another, and for nothing else: what fails holds back what is to follow it, a
// receiver that is dead holds back no other one, and nobody who writes an event waits
// for anything.
//
// A delivery that fails is tried again after 1 s, then after twice as long each time
// up to 5 minutes, somewhat less by chance, or when the error says so by a method
// RetryAt() time.Time. It is given up, and kept as a dead letter with the reason, when
// an attempt fails 24 hours after the event and is not one of the first five, or at
// once when its error is of kind deploy.Invalid: the receiver will never take this
// message. What a person can mend, such as a wrong token, is of kind deploy.Denied
// and is tried again.
//
// It never decides what happens, never knows a receiver by its type, and never writes
// a secret into an error: receivers keep theirs.
//
// Receivers live in packages of their own below this one. Their tests use a real
// store and servers that speak HTTP.
package notify
