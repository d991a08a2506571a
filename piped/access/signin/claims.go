package signin

import (
	"crypto/subtle"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// skew is how far the clocks of the agent and an issuer may differ.
const skew = time.Minute

// asymmetric are the accepted algorithms of ID tokens. Without none and HMAC, no token can be
// made without the issuer's private key.
func asymmetric() []string {
	return []string{
		oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
	}
}

// claims are those of an ID token or of userinfo.
type claims map[string]json.RawMessage

// has reports whether a claim is there.
func (c claims) has(name string) bool {
	value, ok := c[name]
	return ok && string(value) != "null"
}

// text returns a claim that is a string, else "".
func (c claims) text(name string) string {
	var s string
	if json.Unmarshal(c[name], &s) != nil {
		return ""
	}
	return s
}

// texts returns a claim that is a list of strings or one string.
func (c claims) texts(name string) ([]string, bool) {
	if !c.has(name) {
		return nil, true
	}
	if one := c.text(name); one != "" {
		return []string{one}, true
	}
	var list []string
	err := json.Unmarshal(c[name], &list)
	return list, err == nil
}

// yes reports whether a claim is true; some issuers write "true".
func (c claims) yes(name string) bool {
	var b bool
	return json.Unmarshal(c[name], &b) == nil && b || c.text(name) == "true"
}

// time returns a claim that is a time, zero if there is none; ok is false if it is no time.
func (c claims) time(name string) (_ time.Time, ok bool) {
	if !c.has(name) {
		return time.Time{}, true
	}
	var seconds float64
	if json.Unmarshal(c[name], &seconds) != nil || seconds < 0 || seconds > 1<<40 {
		return time.Time{}, false
	}
	return time.Unix(int64(seconds), 0), true
}

// checkToken checks what go-oidc leaves to its callers: the times with our skew, azp, nonce
// and the hash of the access token. An empty nonce is not checked.
func checkToken(token *oidc.IDToken, c claims, clientID, nonce, accessToken string, now time.Time) error {
	issued, okIssued := c.time("iat")
	expires, okExpires := c.time("exp")
	begins, okBegins := c.time("nbf")
	switch {
	case !okIssued || !okExpires || !okBegins || issued.IsZero() || expires.IsZero():
		return deploy.Errorf(deploy.Internal, "the ID token does not say from when until when it is valid")
	case !now.Before(expires.Add(skew)):
		return deploy.Errorf(deploy.Internal, "the ID token expired %s ago; compare the clocks", now.Sub(expires).Round(time.Second))
	case issued.After(now.Add(skew)) || begins.After(now.Add(skew)):
		return deploy.Errorf(deploy.Internal, "the ID token is not valid yet; compare the clocks")
	case token.Subject == "":
		return deploy.Errorf(deploy.Internal, "the ID token names no subject")
	case c.has("azp") && c.text("azp") != clientID, len(token.Audience) > 1 && !c.has("azp"):
		return deploy.Errorf(deploy.Internal, "the ID token was issued to another client")
	case nonce != "" && subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1:
		return deploy.Errorf(deploy.Internal, "the ID token has the nonce of another attempt")
	}
	if token.AccessTokenHash == "" {
		return nil
	}
	if err := token.VerifyAccessToken(accessToken); err != nil {
		return deploy.Errorf(deploy.Internal, "the ID token belongs to another access token: %w", err)
	}
	return nil
}

// userOf returns the user that claims describe.
func userOf(issuer config.Issuer, c claims) (deploy.User, error) {
	u := deploy.User{Issuer: issuer.Name, Subject: c.text(issuer.SubjectClaim), Name: c.text("name")}
	if !plain(u.Name) {
		u.Name = ""
	}
	if u.Subject == "" {
		return u, deploy.Errorf(deploy.Denied, "issuer %s gives no claim %q, which names the user (subjectClaim); does a scope lack?", issuer.Name, issuer.SubjectClaim)
	}
	verified := c.yes("email_verified")
	if issuer.SubjectClaim == "email" && !verified {
		return u, deploy.Errorf(deploy.Denied, "issuer %s does not say that %s is verified (claim email_verified)", issuer.Name, clip(u.Subject))
	}
	if len(issuer.AllowedDomains) > 0 {
		at := strings.LastIndexByte(c.text("email"), '@')
		domain := c.text("email")[at+1:]
		permitted := func(d string) bool { return strings.EqualFold(d, domain) }
		if at < 0 || !verified || !slices.ContainsFunc(issuer.AllowedDomains, permitted) {
			return u, deploy.Errorf(deploy.Denied, "%s has no verified e-mail address of the allowed domains of issuer %s", clip(u.Subject), issuer.Name)
		}
	}
	groups, ok := c.texts(issuer.GroupsClaim)
	if !ok {
		return u, deploy.Errorf(deploy.Denied, "claim %q of issuer %s (groupsClaim) is no list of texts", issuer.GroupsClaim, issuer.Name)
	}
	u.Groups = groups
	return u, check(u)
}
