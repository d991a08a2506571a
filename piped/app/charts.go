package app

import (
	"slices"

	"github.com/c785c783/piped/piped/config"
)

// charts are the sources of Helm charts. Chart repositories in Git are remotes.
type charts struct {
	repositories []config.ChartRepository
	registries   []config.ChartRegistry
	allowed      []string // hosts that may have private addresses
}

// same reports whether both have the same sources and credentials.
func (c charts) same(o charts) bool {
	return slices.Equal(c.allowed, o.allowed) && slices.EqualFunc(c.repositories, o.repositories, func(a, b config.ChartRepository) bool {
		return a.Type == b.Type && a.Name == b.Name && a.Address == b.Address && a.Insecure == b.Insecure &&
			a.Username == b.Username && a.Password.Equal(b.Password)
	}) && slices.EqualFunc(c.registries, o.registries, func(a, b config.ChartRegistry) bool {
		return a.Address == b.Address && a.Username == b.Username && a.Password.Equal(b.Password)
	})
}
