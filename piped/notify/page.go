package notify

import (
	"net/url"
	"strings"
)

// Page returns the address at which browsers reach the agent's page, or "" if none is
// configured. It is called for each link, because a reload of the configuration can change the
// address. A nil Page has no address.
type Page func() string

// Deployment returns the address of a deployment, or "".
func (p Page) Deployment(id string) string { return p.at("/deployments/", id) }

// Application returns the address of an application, or "".
func (p Page) Application(id string) string { return p.at("/applications/", id) }

// PlanPreview returns the address of the plan preview of a command, or "".
func (p Page) PlanPreview(commandID string) string { return p.at("/plan-previews/", commandID) }

// Rollouts returns the address of the rollouts in a namespace, or "".
func (p Page) Rollouts(namespace string) string {
	base := p.base()
	if base == "" {
		return ""
	}
	return base + "/rollouts?namespace=" + url.QueryEscape(namespace)
}

// Agent returns the address of the agent's state, or "".
func (p Page) Agent() string {
	base := p.base()
	if base == "" {
		return ""
	}
	return base + "/agent"
}

// Subject returns the address of what n is about: the deployment, else the application, else the
// agent. It returns "" for an application that is not stored, which the page does not show.
func (p Page) Subject(n Notice) string {
	switch {
	case n.Event.DeploymentID != "":
		return p.Deployment(n.Event.DeploymentID)
	case n.Application != nil:
		return p.Application(n.Application.ID)
	case n.Details.Piped != nil:
		return p.Agent()
	}
	return ""
}

// at returns the address of an object, or "" without an ID.
func (p Page) at(path, id string) string {
	base := p.base()
	if base == "" || id == "" {
		return ""
	}
	return base + path + url.PathEscape(id)
}

func (p Page) base() string {
	if p == nil {
		return ""
	}
	return strings.TrimRight(p(), "/")
}
