package page

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// columnsCookie holds what the browser's list of applications hides, and its density.
const columnsCookie = "piped-columns"

// compactRows is the density of the list that is not the default.
const compactRows = "compact"

// listColumns are the columns of the list that can be hidden. Their names are classes of the cells.
func listColumns() []struct{ name, label string } {
	return []struct{ name, label string }{
		{"live-commit", "Live commit"}, {"images", "Images"}, {"last", "Last deployment"}, {"reason", "Reason"},
	}
}

// columnChoice is how a browser shows the list. The table has it as classes, so that the rows, which
// browsers share while they are live, are the same for all.
type columnChoice struct {
	hidden  []string // names of columns
	compact bool
}

// columns returns the choice of the browser. The cookie is not trusted: what it has beyond known
// names is left out.
func (v *visit) columns() columnChoice {
	var out columnChoice
	c, err := v.r.Cookie(columnsCookie)
	if err != nil {
		return out
	}
	words := strings.Split(c.Value, ".")
	for _, column := range listColumns() {
		if slices.Contains(words, column.name) {
			out.hidden = append(out.hidden, column.name)
		}
	}
	out.compact = slices.Contains(words, compactRows)
	return out
}

func (c columnChoice) shows(name string) bool { return !slices.Contains(c.hidden, name) }

// cookie returns the choice as the cookie has it; "" for the default.
func (c columnChoice) cookie() string {
	words := slices.Clone(c.hidden)
	if c.compact {
		words = append(words, compactRows)
	}
	return strings.Join(words, ".")
}

// classes returns the classes of the table.
func (c columnChoice) classes() string {
	classes := []string{"table", "applications"}
	for _, name := range c.hidden {
		classes = append(classes, "without-"+name)
	}
	if c.compact {
		classes = append(classes, compactRows)
	}
	return strings.Join(classes, " ")
}

// changeColumns stores the choice of a form in the browser, and leads back to the list.
func changeColumns(v *visit) (*screen, error) {
	if err := v.r.ParseForm(); err != nil {
		return nil, status.Error(codes.InvalidArgument, "the form cannot be read: "+err.Error())
	}
	form := v.r.PostForm
	q, err := url.ParseQuery(form.Get("query"))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "the form has no valid query: "+err.Error())
	}
	choice := columnChoice{compact: form.Get("density") == compactRows}
	for _, column := range listColumns() {
		if !slices.Contains(form["column"], column.name) {
			choice.hidden = append(choice.hidden, column.name)
		}
	}
	v.remember(columnsCookie, choice.cookie())
	return &screen{to: listPath(q.Encode())}, nil
}

// cookieLife is how long a browser stores what the list remembers.
const cookieLife = 365 * 24 * time.Hour

// remember stores a cookie of the list in the browser; "" removes it.
func (v *visit) remember(name, value string) {
	c := &http.Cookie{
		Name: name, Value: value, Path: "/applications", HttpOnly: true, Secure: v.config.Secure(v.r), SameSite: http.SameSiteLaxMode,
		MaxAge: int(cookieLife / time.Second),
	}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(v.w, c)
}
