package store

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// restriction is the condition that a row belongs to an application of a scope, in one of two
// forms. They select the same rows, but SQLite, which has no statistics of values, derives
// different query plans from them.
//
// The condition on each row is checked while the rows are read in their order, and reads little
// when the scope contains many of them. The condition on the set determines the applications
// of the scope first and reads only their rows, which is better when there are few of them.
type restriction struct {
	dialect dialect
	scope   deploy.Scope
	list    scopedList
}

// scopedList is a list of rows that belong to applications.
type scopedList struct {
	table  string
	column string // with the ID of the application
	order  string // the column by which the list is sorted, in descending order
}

// scoped adds the condition that a row belongs to an application of scope, in the form that
// suits the scope; nil adds nothing. It returns true if few rows can satisfy the condition.
//
// few is true if the other conditions leave few rows. limit and cursor are those of the page:
// without a limit all rows of the scope are read in any case.
func (s *Store) scoped(ctx context.Context, f *filter, scope *deploy.Scope, list scopedList, few bool, limit int, cursor string) (rare bool, err error) {
	switch {
	case scope == nil || scope.All:
		return false, nil
	case scope.None():
		f.add(never)
		return true, nil
	}
	r := restriction{s.dialect, *scope, list}
	if !few && limit > 0 {
		if rare, err = s.rareScope(ctx, r, limit, cursor); err != nil {
			return false, err
		}
	}
	if rare || !few && limit == 0 {
		r.bySet(f)
	} else {
		r.byRow(f)
	}
	return rare, nil
}

// rareScope reports whether few rows belong to applications of the scope. Before it counts
// them, it checks whether the page is among the next rows of the list. It reads little,
// whatever there is.
func (s *Store) rareScope(ctx context.Context, r restriction, limit int, cursor string) (bool, error) {
	query, args, err := r.countNext(4*limit, cursor)
	if err != nil {
		return false, err
	}
	if found, _, err := one(ctx, s, scanNumber, query, args...); err != nil || found >= int64(limit) {
		return false, err
	}
	query, args = r.countAll(maxRare + 1)
	found, _, err := one(ctx, s, scanNumber, query, args...)
	return found <= maxRare, err
}

// countNext returns a query for how many of the next n rows of the list are in the scope.
func (r restriction) countNext(n int, cursor string) (query string, args []any, err error) {
	var f filter
	if cursor != "" {
		p, err := parseCursor(cursor)
		if err != nil {
			return "", nil, err
		}
		f.add(r.list.order+" <= ?", p.UpdatedAt)
	}
	rows := f.limit("SELECT "+r.list.column+" AS application_id FROM "+r.list.table+f.where()+" ORDER BY "+r.list.order+" DESC", n)
	cond, args := r.alternatives(lookUp("a"))
	return "SELECT COUNT(*) FROM (" + rows + ") listed WHERE (SELECT 1 FROM applications a WHERE a.id = listed.application_id AND " + cond + ") = 1", append(f.args, args...), nil
}

// countAll returns a query for how many rows are in the scope, at most n.
func (r restriction) countAll(n int) (query string, args []any) {
	var f filter
	r.bySet(&f, n)
	query = f.limit("SELECT 1 FROM "+r.list.table+f.where(), n)
	return "SELECT COUNT(*) FROM (" + query + ") found", f.args
}

// form is how the condition on an application is written.
type form struct {
	alias string // of the table of applications
	label string // the condition that the application @ has a label
	plain string // follows a column, and keeps SQLite from searching for its value in an index
}

// lookUp reads the values of an application that is at hand.
func lookUp(alias string) form {
	return form{alias, "(SELECT l.value FROM application_labels l WHERE l.application_id = @.id AND l.name = ?) = ?", " || ''"}
}

// find searches for the applications that have the values.
func find(alias string) form {
	return form{alias, "@.id IN (SELECT l.application_id FROM application_labels l WHERE l.name = ? AND l.value = ?)", ""}
}

// byRow adds the condition on each row.
func (r restriction) byRow(f *filter) {
	if r.list.table == "applications" {
		cond, args := r.alternatives(lookUp("applications"))
		f.add(cond, args...)
		return
	}
	cond, args := r.alternatives(lookUp("a"))
	f.add("(SELECT 1 FROM applications a WHERE a.id = "+r.list.table+"."+r.list.column+" AND "+cond+") = 1", args...)
}

// bySet adds the condition on the set of applications. atMost bounds their number, for
// queries that need not find all.
func (r restriction) bySet(f *filter, atMost ...int) {
	cond, args := r.alternatives(find("a"))
	query := "SELECT a.id FROM applications a WHERE " + cond
	for _, n := range atMost {
		query, args = query+" LIMIT ?", append(args, n)
	}
	f.add(r.list.column+" IN ("+query+")", args...)
}

// never and always are conditions without arguments.
const (
	never  = "1 = 0"
	always = "1 = 1"
)

// alternatives returns the condition that an application is in the scope.
func (r restriction) alternatives(how form) (cond string, args []any) {
	conds := make([]string, 0, len(r.scope.Alternatives))
	for _, selectors := range r.scope.Alternatives {
		var f filter
		for _, selector := range selectors {
			r.selector(&f, selector, how)
		}
		if len(f.conds) == 0 {
			f.add(always)
		}
		conds = append(conds, "("+strings.Join(f.conds, " AND ")+")")
		args = append(args, f.args...)
	}
	return "(" + anyOf(conds) + ")", args
}

// selector adds the conditions of a selector. A text that no row can hold matches none; as an
// argument it would be replaced by one that a row can hold.
func (r restriction) selector(f *filter, selector deploy.Selector, how form) {
	for _, name := range slices.Sorted(maps.Keys(selector.Labels)) {
		value := selector.Labels[name]
		if clean(name) != name || clean(value) != value {
			f.add(never)
			continue
		}
		f.add(strings.ReplaceAll(how.label, "@", how.alias), name, value)
	}
	if len(selector.Names) > 0 {
		r.names(f, selector.Names, how.alias+".name"+how.plain)
	}
	if len(selector.Repositories) > 0 {
		oneOf(f, how.alias+".repo_id"+how.plain, selector.Repositories)
	}
}

// names adds the condition that a name is one of a list or matches one of its patterns.
func (r restriction) names(f *filter, names []string, column string) {
	exact := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.Contains(n, "*") })
	var either filter
	if len(exact) > 0 {
		oneOf(&either, column, exact)
	}
	for _, name := range names {
		if strings.Contains(name, "*") && clean(name) == name {
			cond, pattern := r.dialect.wildcard(column, name)
			either.add(cond, pattern)
		}
	}
	f.add("("+anyOf(either.conds)+")", either.args...)
}

// oneOf adds the condition that a column has one of these values.
func oneOf(f *filter, column string, values []string) {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return clean(v) != v })
	if len(values) == 0 {
		f.add(never)
		return
	}
	in(f, column, values)
}

// anyOf joins conditions by OR, as a balanced tree, because SQLite limits its depth. Without
// conditions it returns one that is never true.
func anyOf(conds []string) string {
	switch n := len(conds); n {
	case 0:
		return never
	case 1:
		return conds[0]
	default:
		return "(" + anyOf(conds[:n/2]) + " OR " + anyOf(conds[n/2:]) + ")"
	}
}
