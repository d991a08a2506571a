package access

import "github.com/c785c783/piped/piped/config"

// RolesOf returns the roles of a configuration, with built-in roles replaced by their
// permissions.
func RolesOf(c config.Access) []Role {
	roles := make([]Role, 0, len(c.Roles))
	for _, r := range c.Roles {
		roles = append(roles, Role{
			Name: r.Name, Groups: r.Groups, Subjects: r.Subjects, Applications: r.Selector(), Permissions: r.Granted(),
		})
	}
	return roles
}
