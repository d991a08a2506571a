package install

const (
	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelManagedBy = "app.kubernetes.io/managed-by"
)

// labels are those of every object of the installation in a namespace.
func labels(namespace string) map[string]string {
	return map[string]string{labelName: "piped", labelInstance: namespace, labelManagedBy: FieldManager}
}

// FieldManager is the manager of the fields that are applied, and of the objects.
const FieldManager = "piped-install"
