package main

import (
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// roles warns of roles of the known agents that no user can have, and of those that select none
// of the checked applications. The repository of the files is unknown here: an application
// counts as one of each watched repository.
func (c *checker) roles() {
	for _, agent := range c.agents {
		var apps []deploy.Application
		for _, app := range c.apps {
			apps = append(apps, inEach(agent.Repositories, app)...)
		}
		for _, role := range agent.Access.Roles {
			if why := unheld(agent.Access, role); why != "" {
				c.warnings = append(c.warnings, fmt.Sprintf("%s: no user can have role %q: %s; only API keys can", role.Position, role.Name, why))
			}
			if len(apps) > 0 && !slices.ContainsFunc(apps, role.Selector().Matches) {
				c.warnings = append(c.warnings, fmt.Sprintf("%s: role %q selects none of the checked applications", role.Position, role.Name))
			}
		}
	}
}

// unheld returns why no user can have a role; "" if one can. The holder of an API key who signs
// in has the key's role and no other.
func unheld(access config.Access, role config.AccessRole) string {
	switch {
	case len(role.Groups) == 0 && len(role.Subjects) == 0:
		return "it names no groups and no subjects"
	case len(access.Issuers) == 0:
		return "no issuer is configured"
	}
	return ""
}

// inEach returns an application as one of each watched repository.
func inEach(repositories []config.Repository, app deploy.Application) []deploy.Application {
	if len(repositories) == 0 {
		return []deploy.Application{app}
	}
	var all []deploy.Application
	for _, r := range repositories {
		app.Git.RepoID = r.RepoID
		all = append(all, app)
	}
	return all
}
