package signin

import (
	"embed"
	"encoding/json"
	"html/template"
	"mime"
	"net/http"

	"github.com/c785c783/piped/piped/deploy"
)

//go:embed page.html
var files embed.FS

// parsePages returns the pages, with the address of a style sheet, "" for none.
func parsePages(style string) *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{"style": func() string { return style }}).ParseFS(files, "page.html"))
}

// choosePage lists the issuers.
type choosePage struct {
	Issuers []issuerLink
	CLI     *cli
	Next    string
}

type issuerLink struct {
	Name, Link string
	Away       bool
}

// confirmPage asks whether pipectl may sign in.
type confirmPage struct {
	Subject, Issuer string
	Port            int
	Ticket          string
}

// messagePage says one thing.
type messagePage struct{ Title, Text string }

// render writes a page. Write errors are ignored: the client is gone.
func (h *Handler) render(w http.ResponseWriter, code int, name string, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	if err := h.pages.ExecuteTemplate(w, name, data); err != nil {
		h.config.Logger.Debug("cannot write a page", "page", name, "error", err)
	}
}

// say writes a page with a message.
func (h *Handler) say(w http.ResponseWriter, code int, title, text string) {
	h.render(w, code, "message", messagePage{title, text})
}

// failed writes the page of a failed sign-in. It is the same for every reason but an issuer
// that cannot be reached.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, err error) {
	reference := h.refused(r, err)
	if deploy.IsKind(err, deploy.Unavailable) {
		h.say(w, http.StatusServiceUnavailable, "Sign-in is not possible now", "The issuer or the agent's store cannot be reached. Try again later. The agent's log has the reason under reference "+reference+".")
		return
	}
	h.say(w, http.StatusForbidden, "Sign-in failed", "Go to the sign-in page and try again. The agent's log has the reason under reference "+reference+".")
}

// failedJSON is failed for pipectl.
func (h *Handler) failedJSON(w http.ResponseWriter, r *http.Request, err error) {
	reference := h.refused(r, err)
	if deploy.IsKind(err, deploy.Unavailable) {
		refuse(w, http.StatusServiceUnavailable, "temporarily_unavailable", "the issuer or the agent's store cannot be reached: retry later; the agent's log has the reason under reference "+reference)
		return
	}
	refuse(w, http.StatusForbidden, "access_denied", "the sign-in failed: begin again; the agent's log has the reason under reference "+reference)
}

// isJSON reports whether a request has a body of JSON, which no form of another site can send.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// asJSON refuses requests without a body of JSON.
func asJSON(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isJSON(r) {
			refuse(w, http.StatusUnsupportedMediaType, "invalid_request", "the body must be application/json")
			return
		}
		next(w, r)
	}
}

// read decodes a body, and answers if that fails.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request", "the body is not the JSON that is expected here")
		return false
	}
	return true
}

// refuse answers with an error in the form of OAuth 2.0.
func refuse(w http.ResponseWriter, status int, code, description string) {
	write(w, status, map[string]string{"error": code, "error_description": description})
}

// write answers with JSON. Write errors are ignored: the client is gone.
func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
