package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

const pipedHead = "apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec:\n"

func parsePiped(t *testing.T, name, text string) *Piped {
	t.Helper()
	p, _, err := kinds.ParsePiped(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p.InFile = nil // TestEffectiveAgent compares it
	return p
}

func TestPipedDefaults(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	want := &Piped{
		ProjectID: "default", PipedID: "piped", DataDir: "/home/someone/.piped",
		Store:        Store{DSN: strict.NewSecret("sqlite:///home/someone/.piped/piped.db"), Replicas: ReplicasStandBy},
		API:          API{Address: "127.0.0.1:9083", RateLimit: RateLimit{PerSecond: 1000, Burst: 2000}},
		Web:          Web{Address: "127.0.0.1:9085"},
		SyncInterval: 15 * time.Second,
		Git:          Git{Username: "piped", Email: "piped@localhost"},
		Limits:       Limits{Deployments: 50},
		Access:       Access{Sessions: Sessions{IdleTimeout: 12 * time.Hour, MaxAge: 168 * time.Hour, GroupsInterval: 15 * time.Minute}},
		Adopt:        AdoptAuto,
		Scripts:      Scripts{Isolation: IsolationAuto},
		PlanPreview:  PlanPreview{WorkerNum: 3, CommandHandleTimeout: 5 * time.Minute},
		Retention:    Retention{Deployments: 8760 * time.Hour, KeepPerApplication: 20, StageLogs: 2160 * time.Hour, Audit: 9600 * time.Hour},
		Telemetry:    Telemetry{SampleRatio: 1},
	}
	if diff := cmp.Diff(want, parsePiped(t, "piped.yaml", pipedHead+"  {}\n")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPipedEveryField(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	text, err := os.ReadFile("testdata/piped/valid-every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	secret := strict.NewSecret("hunter2")
	want := &Piped{
		ProjectID: "shop", PipedID: "p1", Name: "agent", DataDir: "/etc/piped/data",
		Store: Store{DSN: strict.NewSecret("postgres://u:p@db/piped"), KeyFile: "/etc/piped/store.key", Replicas: ReplicasStandBy},
		API: API{
			Address: "0.0.0.0:1", TLSCertFile: "/etc/piped/tls/a.crt", TLSKeyFile: "/home/someone/a.key", ClientCAFile: "/etc/piped/tls/ca.crt",
			RateLimit: RateLimit{PerSecond: 7, Burst: 8}, AuditFile: "/etc/piped/audit.jsonl",
		},
		Web: Web{
			Address: "localhost:2", TLSCertFile: "/etc/piped/tls/web.crt", TLSKeyFile: "/etc/piped/tls/web.key", ClientCAFile: "/etc/piped/tls/web-ca.crt",
		},
		SyncInterval: 3 * time.Second,
		Git: Git{
			Username: "bot", Email: "bot@example.com", SSHKeyData: secret,
			Host: "git.example.com", HostName: "10.0.0.1", KnownHostsFile: "/etc/piped/known", RemoteHosts: []string{"git.example.org"},
		},
		Repositories: []Repository{
			{RepoID: "a", Remote: "/etc/repo", Branch: "main", Discover: &Discover{}},
			{RepoID: "b", Remote: "git@example.com:b.git", Branch: "dev", Discover: &Discover{Paths: patterns(t, "apps"), Labels: map[string]string{"env": "dev"}}},
			{RepoID: "c", Remote: "/srv/c.git", Branch: "main"},
		},
		Webhooks: []Webhook{
			{Name: "github", Type: WebhookGitHub, Secret: secret},
			{Name: "gitlab", Type: WebhookGitLab, SecretFile: "/etc/piped/hooks/gitlab"},
		},
		Providers: []PlatformProvider{
			{Name: "dev", Type: "KUBERNETES", Labels: map[string]string{"zone": "a"}, Config: &kubernetes.Provider{
				MasterURL: "https://x", KubeConfigPath: "/etc/piped/kube", Context: "dev-admin",
				AppStateInformer: kubernetes.AppStateInformer{
					Namespace:        "shop",
					IncludeResources: []kubernetes.ResourceMatcher{{APIVersion: "v1"}},
					ExcludeResources: []kubernetes.ResourceMatcher{{APIVersion: "v1", Kind: "Event"}},
				},
			}},
			{Name: "old", Type: "KUBERNETES", Config: &kubernetes.Provider{}},
		},
		Limits: Limits{Deployments: 3, PerCluster: 2},
		Access: Access{
			ExternalURL: "http://localhost:9085",
			Roles:       []AccessRole{{Name: "all", Subjects: []string{"*"}, Permissions: []AccessPermission{"viewer"}, Position: "/etc/piped/piped.yaml:44"}},
			Issuers: []Issuer{{
				Name: "staff", Type: IssuerOIDC, Issuer: "https://login.example.com", ClientID: "piped", ClientSecretFile: "/etc/piped/oidc",
				Scopes: []string{"openid", "email", "profile"}, GroupsClaim: "groups", SubjectClaim: "email",
			}},
			Sessions: Sessions{IdleTimeout: 12 * time.Hour, MaxAge: 24 * time.Hour, GroupsInterval: 15 * time.Minute},
		},
		Adopt:   AdoptReview,
		Charts:  Charts{AllowedHosts: []string{"charts.example.org:8443"}},
		Scripts: Scripts{Isolation: IsolationAuto},
		ChartRepositories: []ChartRepository{
			{Type: ChartRepositoryHTTP, Name: "charts", Address: "https://charts.example.com", Username: "bot", Password: secret, Insecure: true},
			{Type: ChartRepositoryGit, GitRemote: "git@example.com:charts.git", SSHKeyFile: "/etc/piped/charts.key"},
		},
		ChartRegistries: []ChartRegistry{{Type: ChartRegistryOCI, Address: "oci.example.com", Username: "bot", Password: secret}},
		AnalysisProviders: []AnalysisProvider{
			{Name: "prometheus", Type: AnalysisPrometheus, Config: &Prometheus{Address: "http://p", UsernameFile: "/etc/piped/u", PasswordFile: "/etc/piped/p"}},
			{Name: "datadog", Type: AnalysisDatadog, Config: &Datadog{Address: "datadoghq.eu", APIKeyFile: "/etc/piped/api", ApplicationKeyData: secret}},
			{Name: "datadog-2", Type: AnalysisDatadog, Config: &Datadog{Address: "datadoghq.com", APIKeyData: secret, ApplicationKeyFile: "/etc/piped/app"}},
			{Name: "loki", Type: AnalysisLoki, Config: &Loki{Address: "http://l", UsernameFile: "/etc/piped/u", PasswordFile: "/etc/piped/p", Tenant: "shop"}},
		},
		Notifications: Notifications{
			Routes: []NotificationRoute{{
				Name: "prod", Receiver: "hook", Events: []NotificationEvent{"DEPLOYMENT_FAILED"}, IgnoreEvents: []NotificationEvent{"PIPED_STARTED"},
				Groups: []NotificationGroup{"DEPLOYMENT"}, IgnoreGroups: []NotificationGroup{"STAGE"}, Apps: []string{"web"}, IgnoreApps: []string{"api"},
				Labels: map[string]string{"env": "prod"}, IgnoreLabels: map[string]string{"team": "a"}, Previews: PreviewsAlso,
			}},
			Receivers: []NotificationReceiver{
				{Name: "hook", Slack: &SlackReceiver{HookURL: secret, MentionedAccounts: []string{"U1", "U2"}, MentionedGroups: []string{"S1", "S2"}}},
				{Name: "chat", Slack: &SlackReceiver{OAuthTokenData: secret, ChannelID: "C1"}},
				{Name: "old-chat", Slack: &SlackReceiver{OAuthToken: secret, ChannelID: "C1"}},
				{Name: "file-chat", Slack: &SlackReceiver{OAuthTokenFile: "/etc/piped/token", ChannelID: "C1"}},
				{Name: "web", Webhook: &WebhookReceiver{URL: "https://x/y", SignatureKey: "PipeCD-Signature", SignatureValue: secret, HMACSecret: secret}},
				{Name: "web-2", Webhook: &WebhookReceiver{URL: "http://x", SignatureKey: "X-Key", SignatureValueFile: "/etc/piped/signature", HMACSecretFile: "/etc/piped/hmac"}},
			},
		},
		SecretManagement: SecretManagement{Type: SecretManagementKeyPair, Config: &KeyPair{PrivateKeyFile: "/etc/piped/private", PublicKeyData: secret}},
		SOPS:             SOPS{AgeIdentityFile: "/etc/piped/age.txt", PGPKeyFile: "/etc/piped/pgp.asc", PGPPassphraseFile: "/etc/piped/passphrase"},
		EventWatcher: EventWatcher{GitRepos: []EventWatcherRepository{
			{RepoID: "a", CommitMessage: "Update", Includes: patterns(t, "a.yaml"), Excludes: patterns(t, "b/*")},
		}},
		PlanPreview: PlanPreview{WorkerNum: 1, CommandHandleTimeout: 4 * time.Second},
		Retention:   Retention{Disabled: true, Deployments: 720 * time.Hour, KeepPerApplication: 3, StageLogs: 48 * time.Hour, Audit: 72 * time.Hour},
		AppSelector: map[string]string{"env": "dev"},
		Telemetry:   Telemetry{OTLPEndpoint: "collector:4317", Insecure: true, Headers: map[string]strict.Secret{"authorization": secret}, SampleRatio: 0.5},
		Debug:       Debug{PprofAddress: "localhost:6060"},
		RolloutExport: RolloutExport{BigQuery: &BigQuery{
			Project: "shop-data", Dataset: "delivery", Table: "rollouts", CredentialsFile: "/etc/piped/bigquery.json", Endpoint: "http://localhost:9050",
		}},
	}
	if diff := cmp.Diff(want, parsePiped(t, "/etc/piped/piped.yaml", string(text))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRelativeStoreIsRelativeToTheFile(t *testing.T) {
	p := parsePiped(t, "/etc/piped/piped.yaml", pipedHead+"  dataDir: /d\n  store: {dsn: \"sqlite://state/piped.db\"}\n")
	if got, want := p.Store.DSN.Reveal(), "sqlite:///etc/piped/state/piped.db"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLogsAreNotKeptLongerThanTheirDeployment(t *testing.T) {
	p := parsePiped(t, "piped.yaml", pipedHead+"  dataDir: /d\n  retention: {deployments: 720h}\n")
	want := Retention{Deployments: 720 * time.Hour, KeepPerApplication: 20, StageLogs: 720 * time.Hour, Audit: 9600 * time.Hour}
	if diff := cmp.Diff(want, p.Retention); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHomeIsNeededOnlyByPathsThatNameIt(t *testing.T) {
	t.Setenv("HOME", "")
	if _, _, err := kinds.ParsePiped("piped.yaml", []byte(pipedHead+"  dataDir: /d\n")); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	_, _, err := kinds.ParsePiped("piped.yaml", []byte(pipedHead+"  dataDir: ~/d\n"))
	want := `piped.yaml:4: spec.dataDir: "~/d" needs the home directory, and HOME is not set; write an absolute path`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRepositorySelects(t *testing.T) {
	const file = "apps/web/app.pipecd.yaml"
	labels := map[string]string{"env": "dev", "team": "a"}
	tests := []struct {
		name     string
		discover *Discover
		want     bool
	}{
		{"absent takes nothing", nil, false},
		{"empty takes all", &Discover{}, true},
		{"directory", &Discover{Paths: patterns(t, "apps")}, true},
		{"directory pattern", &Discover{Paths: patterns(t, "apps/*")}, true},
		{"file pattern", &Discover{Paths: patterns(t, "**/*.pipecd.yaml")}, true},
		{"another directory", &Discover{Paths: patterns(t, "infra")}, false},
		{"excluded", &Discover{Paths: patterns(t, "apps", "!apps/web")}, false},
		{"label", &Discover{Labels: map[string]string{"env": "dev"}}, true},
		{"one label of two", &Discover{Labels: map[string]string{"env": "dev", "team": "b"}}, false},
		{"path and label", &Discover{Paths: patterns(t, "apps"), Labels: map[string]string{"env": "prod"}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := (Repository{Discover: tt.discover}).Selects(file, labels); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}

func TestLoadPiped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "piped.yaml")
	_, _, err := kinds.LoadPiped(file)
	if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error of kind invalid that names the file", err)
	}
	if err := os.WriteFile(file, []byte(pipedHead+"  dataDir: d\n  apiAddress: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, warnings, err := kinds.LoadPiped(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(filepath.Dir(file), "d"); p.DataDir != want {
		t.Errorf("got %s, want %s", p.DataDir, want)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], file+":5: spec.apiAddress: ") {
		t.Errorf("got %q, want one warning about apiAddress", warnings)
	}
}

func FuzzParsePiped(f *testing.F) {
	seed(f, "piped")
	f.Fuzz(func(t *testing.T, data []byte) {
		p, _, err := kinds.ParsePiped("piped.yaml", data)
		if (p == nil) == (err == nil) {
			t.Fatalf("got %v and %v, want one of them", p, err)
		}
		if err == nil && (p.Limits.Deployments < 1 || p.SyncInterval <= 0) {
			t.Fatalf("an impossible configuration was accepted: %+v", p)
		}
	})
}
