package deploy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Partitions is the number of partitions into which the work of the replicas of an agent is
// divided. The number is part of the schema of the store.
const Partitions = 64

// Partition is a part of the work, from 0 to Partitions-1.
type Partition int

// PartitionOf returns the partition of a key: the ID of an application or of a repository, or
// the name of a cluster or of a receiver. It is the same in all replicas and versions.
func PartitionOf(key string) Partition {
	sum := sha256.Sum256([]byte(key))
	return Partition(binary.BigEndian.Uint64(sum[:]) % Partitions)
}

// Replica is a process of an agent that shares a store with others.
type Replica struct {
	ID        string // random, new whenever the process joins again
	Host      string // host name and process
	Version   string
	StartedAt time.Time // of the process
}

// Term is the right of one replica to work on a partition. Number increases with each new
// holder, and is never given twice.
type Term struct {
	Partition Partition
	Number    int64
}

// HeldTerm is a term and the ID of the replica that has, or was the last to have, it. HeldBy is
// "" after the replica has released the partition.
type HeldTerm struct {
	Term
	HeldBy string
}

// Ownership states which replicas there are and what they hold: all partitions in order, and
// the live replicas ordered by ID. A partition whose holder is not among them is free.
type Ownership struct {
	Replicas   []Replica
	Terms      []HeldTerm
	NextExpiry time.Duration // until the first of the replicas expires, unless it is renewed
}

// Live reports whether a replica is among the live ones.
func (o Ownership) Live(id string) bool {
	for _, r := range o.Replicas {
		if r.ID == id {
			return true
		}
	}
	return false
}

type termKey struct{}

// WithTerm returns a context whose writes to the store are refused with the kind Fenced once
// the term is over. Terms of ctx remain: all of them must be current.
func WithTerm(ctx context.Context, term Term) context.Context {
	terms := TermsOf(ctx)
	return context.WithValue(ctx, termKey{}, append(terms[:len(terms):len(terms)], term))
}

// WithTerms is WithTerm, but for all terms of ctx, which are replaced.
func WithTerms(ctx context.Context, terms []Term) context.Context {
	return context.WithValue(ctx, termKey{}, terms)
}

// TermsOf returns the terms that writes with ctx depend on.
func TermsOf(ctx context.Context) []Term {
	terms, _ := ctx.Value(termKey{}).([]Term)
	return terms
}
