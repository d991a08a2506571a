package install

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultClass is the annotation of the class that claims without one get.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

// checkClass checks that the volume will be provisioned.
func (i *Installer) checkClass(ctx context.Context, v Variant) (f Finding, err error) {
	var classes *storagev1.StorageClassList
	err = i.Cluster.Retry(ctx, nil, func(ctx context.Context) (err error) {
		classes, err = i.Cluster.Typed().StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
		return err
	})
	if apierrors.IsForbidden(err) {
		return Finding{"storage", Warning, "storage classes cannot be read: whether the volume will be provisioned is not known", "check again after the installation"}, nil
	}
	if err != nil {
		return f, i.Cluster.Classify(err)
	}
	var names []string
	for _, c := range classes.Items {
		names = append(names, c.Name)
		if c.Name == v.StorageClass || v.StorageClass == "" && c.Annotations[defaultClass] == "true" {
			return Finding{"storage", OK, fmt.Sprintf("a volume of %s will be provisioned by storage class %s", v.StorageSize, c.Name), ""}, nil
		}
	}
	slices.Sort(names)
	has := "it has none"
	if len(names) > 0 {
		has = "it has " + strings.Join(names, ", ")
	}
	if v.StorageClass != "" {
		return Finding{"storage", Problem, fmt.Sprintf("the cluster has no storage class %s; %s", v.StorageClass, has), "name another one with --storage-class"}, nil
	}
	return Finding{"storage", Warning, "the cluster has no default storage class; " + has, "name one with --storage-class, or make a PersistentVolume for the claim " + v.Namespace + "/piped"}, nil
}

// checkClaim checks that the agent has its volume.
func (i *Installer) checkClaim(ctx context.Context) (f Finding, err error) {
	name := i.Namespace + "/piped"
	var claim *corev1.PersistentVolumeClaim
	var events *corev1.EventList
	err = i.Cluster.Retry(ctx, nil, func(ctx context.Context) (err error) {
		core := i.Cluster.Typed().CoreV1()
		if claim, err = core.PersistentVolumeClaims(i.Namespace).Get(ctx, "piped", metav1.GetOptions{}); err != nil {
			return err
		}
		events, err = core.Events(i.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(claim.UID), Limit: maxEvents})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return Finding{"storage", Problem, "there is no PersistentVolumeClaim " + name, "piped install --apply makes it"}, nil
	case err != nil:
		return f, i.Cluster.Classify(err)
	case claim.Status.Phase == corev1.ClaimBound:
		size := claim.Status.Capacity[corev1.ResourceStorage]
		return Finding{"storage", OK, fmt.Sprintf("PersistentVolumeClaim %s is bound, with %s", name, &size), ""}, nil
	}
	text := fmt.Sprintf("PersistentVolumeClaim %s is %s", name, claim.Status.Phase)
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	if len(events.Items) > 0 {
		text += ": " + events.Items[0].Message
	}
	return Finding{"storage", Problem, text, "the agent starts once it is bound: check its storage class, or make a PersistentVolume for it"}, nil
}

func isPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// checkInstalledPostgres checks the database with the password of the Secret. An agent that answers
// reaches it, even if this machine does not.
func (i *Installer) checkInstalledPostgres(ctx context.Context, dsn string, ready bool) (f Finding, err error) {
	s, err := i.getSecret(ctx, StoreSecret)
	if err != nil {
		return f, err
	}
	if s == nil {
		return Finding{"storage", Problem, fmt.Sprintf("there is no Secret %s/%s: the pods cannot start", i.Namespace, StoreSecret), "piped install --only secrets --apply makes it"}, nil
	}
	f = checkPostgres(ctx, dsn, passwordOf(string(s.Data[keyPassword])))
	if f.Level == Warning && ready {
		return Finding{"storage", OK, "the agent uses its database, which this machine does not reach", ""}, nil
	}
	return f, nil
}

// passwordOf returns the password in the line of a password file.
func passwordOf(line string) string {
	line = strings.TrimRight(line, "\r\n")
	field, escaped := 0, false
	var out strings.Builder
	for _, r := range line {
		switch {
		case !escaped && r == '\\':
			escaped = true
			continue
		case !escaped && r == ':' && field < 4:
			field++
		case field == 4:
			out.WriteRune(r)
		}
		escaped = false
	}
	return out.String()
}

// postgresTimeout bounds the check of a database.
const postgresTimeout = 10 * time.Second

// checkPostgres connects to a database, and checks that the agent may make its tables.
func checkPostgres(ctx context.Context, dsn, password string) Finding {
	shown, text := "the database", dsn
	if u, err := url.Parse(dsn); err == nil {
		q := u.Query()
		q.Del("passfile") // a file of the pods
		u.RawQuery = q.Encode()
		text, shown = u.String(), "the database "+strings.Trim(u.Path, "/")+" at "+u.Host
	}
	config, err := pgx.ParseConfig(text)
	if err != nil { // the error contains the address
		return Finding{"storage", Problem, "the address of " + shown + " cannot be read", "write postgres://USER@HOST:5432/DATABASE?sslmode=require"}
	}
	if password != "" {
		config.Password = password
	}
	ctx, cancel := context.WithTimeout(ctx, postgresTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return Finding{"storage", Problem, shown + " refuses the connection: " + answer.Message, "check user, password and pg_hba.conf; --postgres-password-file gives the agent its password"}
	}
	if err != nil {
		return Finding{"storage", Warning, shown + " is not reached from this machine", "check the address, if this machine should reach it; else check again after the installation"}
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing was written
	var may bool
	if err := conn.QueryRow(ctx, "SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)").Scan(&may); err != nil {
		return Finding{"storage", Problem, shown + " does not answer: " + err.Error(), "check its log"}
	}
	if !may {
		return Finding{"storage", Problem, config.User + " may not make tables in " + shown, "GRANT CREATE ON SCHEMA public TO \"" + config.User + "\""}
	}
	return Finding{"storage", OK, config.User + " reaches " + shown + ", and may make its tables", ""}
}
