// Package ownership decides which replica of an agent works on what.
//
// The work is divided into deploy.Partitions partitions. Each has at most one holder, which is
// recorded in the store together with a term that increases with each new holder. A replica
// renews itself every Config.RenewEvery; the others may take its partitions when the database's
// clock says that it has not done so for Config.Expiry. The replica ends its work
// Config.Margin before that, by its own monotonic clock counted from the moment before the last
// successful renewal, so that two replicas never work on a partition at the same time. A replica
// that was stopped and does not notice in time that its terms are over can do no harm to the
// store: the context of the work carries the term, and the store refuses writes of a past one.
//
// The package knows nothing of the work. A component asks for the right to work on a key with
// Own, and gets a context that ends with the right.
package ownership
